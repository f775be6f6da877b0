"""What is measured: one module per question, each with ``async def run(bench)``."""
