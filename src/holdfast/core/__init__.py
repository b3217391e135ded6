"""What a run is and what it does next: pure functions over recorded facts."""
