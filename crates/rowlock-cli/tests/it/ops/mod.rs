//! The commands of those who operate a queue.

mod archive;
mod dead;
mod doctor;
mod jobs;
mod json;
mod mistakes;
mod queues;
mod replay;
mod support;
mod top;
mod why;
mod workers;
