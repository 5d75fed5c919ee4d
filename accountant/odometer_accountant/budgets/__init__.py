"""The kinds of budget: the document a person writes, and the filter that refuses."""
