//! The commands of those who operate a queue.

mod dead;
mod doctor;
mod help;
mod jobs;
mod queues;
mod support;
mod why;
mod workers;
