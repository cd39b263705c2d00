//! The commands of those who operate a queue.

mod archive;
mod dead;
mod doctor;
mod help;
mod jobs;
mod queues;
mod replay;
mod support;
mod top;
mod why;
mod workers;
