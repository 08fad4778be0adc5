"""Generated protobuf modules; see `generate.py`."""
