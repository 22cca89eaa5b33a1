"""Many tensors over many steps."""
