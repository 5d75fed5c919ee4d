"""What comes in from outside: bodies, JSON, events of other libraries, and suggestions for wrong names."""
