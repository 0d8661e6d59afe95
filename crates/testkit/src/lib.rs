//! For tests only: what a gateway meets in the world, started and stopped by the test that needs it.

pub mod ca;
