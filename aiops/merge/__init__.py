"""What a round's pushes become: corrected one by one, made one update, and stepped along by the server."""
