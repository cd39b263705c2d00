use rowlock::Job;
use serde::Serialize;

#[derive(Serialize, Job)]
#[job(kind = "a")]
struct Borrows<'a> {
    name: &'a str,
}

#[derive(Job)]
#[job(kind = "a")]
union Union {
    id: i64,
}

fn main() {}
