"""The torture suite itself: does it find what is wrong, and is nothing wrong?"""
