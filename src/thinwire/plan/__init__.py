"""`thinwire plan`, `simulate` and `doctor`: what compression would come to, before it is used."""
