"""The text language: reads text as conditions, and formats conditions. The only package that imports lark."""
