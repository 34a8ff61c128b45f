"""The studio's server: models of a few folders, one worker, and bytes for a page. On this machine only."""
