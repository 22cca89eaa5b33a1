"""The papers' experiments again, at the scale of one machine: `thinwire reproduce`."""
