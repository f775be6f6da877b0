"""``aiops bench``: what our numbers, our frames and our rounds cost beside those of other libraries.

Both sides of every ratio are measured in the same run, in turn. ``peers/`` holds one small file per library,
``suites/`` what is measured; whoever doubts a number reads those two.
"""
