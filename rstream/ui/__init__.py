"""What people look at: live tables and pages."""
