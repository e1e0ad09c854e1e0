"""`fieldgate service uplink`: what to do about an uplink that stays away."""
