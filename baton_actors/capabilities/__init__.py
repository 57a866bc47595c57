"""Tools that a model may call: what they are made from, how they are called, and those that are built in.

    tool        a function as a tool: the decorator, what a call is given, what it comes to
    schema      its parameters and its docstring, as a model is told of them
    calling     running it so that nothing it does harms who calls it
    answer      what it returned or raised, as bounded text
    catalogue   the tools of one task, and what can be said of a submission's at once
    builtin     the tools that come with the house, on files, pages and readable

Nothing here knows a model or its protocol beyond JSON schema, and nothing here knows Ray.
"""
