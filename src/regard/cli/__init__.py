"""The command line. Nothing here imports torch until a verb needs it."""
