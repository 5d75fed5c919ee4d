"""The accountant for one store: what the HTTP service, the command line and the embedded client call."""
