"""The success bodies of the operations, one module per noun: the schemas of OpenAPI."""
