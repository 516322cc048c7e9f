"""What more devices would do, from what few have shown. Pure arithmetic."""
