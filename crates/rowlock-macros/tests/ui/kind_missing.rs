use rowlock::Job;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
struct Bare {
    id: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "mail")]
struct OnlyQueue {
    id: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job]
struct Empty {
    id: i64,
}

fn main() {}
