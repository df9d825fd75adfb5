"""Pictures of traces for pages: drawn from the text of a page by what the reference says."""
