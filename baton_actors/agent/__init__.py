"""The LLM agent as a worker: the loop of rounds, breakdown, the conversation and its repair, access to models.

It knows no Ray and no SQL: what it needs of the process it runs in is `host.Host`, what it needs of a model is `model.Model`.
`openai` is imported in `chat.py` only, and only when a model is called.
"""
