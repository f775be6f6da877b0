"""The lab: synchronization methods measured side by side on emulated WANs, in virtual time and on real processes."""
