"""What an exchange costs: models in the α-β form, calibrated on the machine at hand."""
