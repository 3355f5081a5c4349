"""The tools that users start: the command line, the demo, the self-check and the doctor."""
