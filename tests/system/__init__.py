"""A real server process, and what real servers meet: crashes, full disks, signals, strangers."""
