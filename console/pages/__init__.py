"""The pages: each file takes the parameters of a request, asks, and hands values to a template."""
