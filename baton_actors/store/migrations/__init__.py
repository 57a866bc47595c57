"""The schema's history, applied by the program itself: `REVISIONS` in order, the last one is current."""

REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]
