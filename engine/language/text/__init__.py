"""The text language: text to conditions and back. The only code that uses lark."""
