use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "", priority = 9)]
#[job(timeout = "soon", colour = "red")]
struct FourMistakes {}

fn main() {}
