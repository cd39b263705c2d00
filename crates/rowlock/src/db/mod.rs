//! Connections: the only room that speaks to the database driver.
