"""The studio's server, for this machine only: models of a few folders, and one worker that runs them."""
