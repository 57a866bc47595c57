"""Tools that a model may call: what they are made from, how they are called, and those that are built in.

Nothing here knows a model or its protocol beyond JSON schema, and nothing here knows Ray.
"""
