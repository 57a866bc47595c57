"""What runs the trees: directory, owners and workers on Ray. The state machine decides, this performs."""
