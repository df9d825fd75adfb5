"""The text language: text to conditions and back. The only room that imports lark."""
