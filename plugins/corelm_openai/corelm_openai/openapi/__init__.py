"""The description of the API: OpenAPI 3.1, made of what the handlers really decode and encode."""
