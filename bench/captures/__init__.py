"""Parts of the measurement capture: recordings, milestones, and a million connections."""
