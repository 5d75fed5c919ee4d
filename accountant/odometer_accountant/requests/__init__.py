"""Request parsing: bodies, JSON, events of other libraries, and suggestions for wrong names."""
