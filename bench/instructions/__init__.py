"""How many instructions the compiled server needs for a job, counted by valgrind: a figure that repeats."""
