//! `#[derive(Job)]`: what it generates, and what it refuses to compile.

use std::time::Duration;

use rowlock::{Backoff, Job, JobOptions, NewJob};
use serde::{Deserialize, Serialize};

#[test]
fn only_the_kind_is_required() {
    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "plain")]
    struct Plain {
        id: i64,
    }
    assert_eq!(Plain::KIND, "plain");
    assert!(Plain::ALIASES.is_empty());
    assert_eq!(Plain::options(), JobOptions::default());
}

#[test]
fn every_option_arrives() {
    #[derive(Serialize, Deserialize, Job)]
    #[job(
        kind = "email.send",
        alias = "email",
        aliases("mail", "größe/2.0"),
        alias = "post",
        queue = "mail",
        priority = -4,
        max_attempts = 1000,
        timeout = "1m30s",
        tags("a", "b"),
        backoff(fixed = "5s")
    )]
    struct Full {}
    assert_eq!(Full::KIND, "email.send");
    assert_eq!(Full::ALIASES, ["email", "mail", "größe/2.0", "post"]);
    let options = Full::options();
    assert_eq!(options.queue.as_deref(), Some("mail"));
    assert_eq!(options.priority, Some(-4));
    assert_eq!(options.max_attempts, Some(1000));
    assert_eq!(options.timeout, Some(Duration::from_secs(90)));
    assert_eq!(options.tags, ["a", "b"]);
    assert_eq!(
        options.backoff,
        Some(Backoff::fixed(Duration::from_secs(5)))
    );
}

#[test]
fn several_attributes_add_up() {
    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "split", queue = "mail")]
    #[serde(rename_all = "camelCase")]
    #[job(priority = 4)]
    struct Split {}
    assert_eq!(Split::options().queue.as_deref(), Some("mail"));
    assert_eq!(Split::options().priority, Some(4));
}

#[test]
fn every_shape_of_backoff() {
    fn backoff<J: Job>() -> Backoff {
        J::options().backoff.unwrap()
    }
    let seconds = Duration::from_secs;

    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "a", backoff(exponential = "1s"))]
    struct Exponential {}
    assert_eq!(backoff::<Exponential>(), Backoff::exponential(seconds(1)));

    #[derive(Serialize, Deserialize, Job)]
    #[job(
        kind = "a",
        backoff(exponential = "1s", factor = 1.5, max = "1h", jitter = 0.25)
    )]
    struct Tuned {}
    assert_eq!(
        backoff::<Tuned>(),
        Backoff::exponential(seconds(1))
            .factor(1.5)
            .max(seconds(3600))
            .jitter(0.25)
    );

    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "a", backoff(jitter = 0, factor = 3, exponential = "250ms"))]
    struct AnyOrder {}
    assert_eq!(
        backoff::<AnyOrder>(),
        Backoff::exponential(Duration::from_millis(250))
            .factor(3.0)
            .jitter(0.0)
    );

    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "a", backoff(linear = "30s", max = "1d"))]
    struct Linear {}
    assert_eq!(
        backoff::<Linear>(),
        Backoff::linear(seconds(30)).max(seconds(86_400))
    );

    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "a", backoff(list("0s", "5s", "1m",), jitter = 1))]
    struct List {}
    assert_eq!(
        backoff::<List>(),
        Backoff::list([seconds(0), seconds(5), seconds(60)]).jitter(1.0)
    );
}

#[test]
fn every_kind_of_type() {
    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "unit")]
    struct Unit;
    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "braces")]
    struct Braces {}
    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "tuple")]
    struct Tuple(Braces);
    #[derive(Serialize, Deserialize, Job)]
    #[serde(tag = "event")]
    #[job(kind = "enum")]
    enum Enum {
        Created { id: i64 },
        Deleted,
    }
    let kinds = [Unit::KIND, Braces::KIND, Tuple::KIND, Enum::KIND];
    assert_eq!(kinds, ["unit", "braces", "tuple", "enum"]);
    let jobs = [
        NewJob::of(&Unit),
        NewJob::of(&Tuple(Braces {})),
        NewJob::of(&Enum::Created { id: 7 }),
        NewJob::of(&Enum::Deleted),
    ];
    assert!(jobs.iter().all(Result::is_ok));
}

#[test]
fn type_parameters_are_bounded_by_what_a_job_needs() {
    #[derive(Serialize, Deserialize, Job)]
    #[job(kind = "envelope", queue = "mail")]
    struct Envelope<T, const N: usize = 1>
    where
        T: Clone,
    {
        content: Vec<T>,
    }
    fn kind<J: Job>(_: &J) -> &'static str {
        J::KIND
    }
    let letters: Envelope<String> = Envelope {
        content: Vec::new(),
    };
    let numbers: Envelope<i64, 3> = Envelope { content: vec![1] };
    assert_eq!(kind(&letters), "envelope");
    assert_eq!(kind(&numbers), "envelope");
    assert_eq!(<Envelope<i64>>::options().queue.as_deref(), Some("mail"));
}

/// As a library that wraps this one would write it.
mod re_exported {
    pub(crate) mod facade {
        pub(crate) mod queue {
            pub(crate) use rowlock::*;
        }
    }

    #[derive(serde::Serialize, serde::Deserialize, facade::queue::Job)]
    #[job(
        kind = "inner",
        crate = "crate::derive::re_exported::facade::queue",
        backoff(fixed = "1s")
    )]
    pub(crate) struct Inner {}
}

#[test]
fn the_library_may_be_elsewhere() {
    assert_eq!(re_exported::Inner::KIND, "inner");
    assert!(re_exported::Inner::options().backoff.is_some());
}

#[test]
fn literals_may_come_through_a_macro() {
    macro_rules! job {
        ($name:ident, $kind:literal, $priority:literal) => {
            #[derive(Serialize, Deserialize, Job)]
            #[job(kind = $kind, priority = $priority, tags($kind))]
            struct $name {}
        };
    }
    job!(Made, "made", -2);
    assert_eq!(Made::KIND, "made");
    assert_eq!(Made::options().priority, Some(-2));
    assert_eq!(Made::options().tags, ["made"]);
}

/// Names of the standard library that a program may have taken.
#[test]
fn the_generated_code_needs_no_names_in_scope() {
    mod hostile {
        #![allow(dead_code, unused_imports)]
        pub(super) struct String;
        pub(super) struct Vec;
        pub(super) struct Option;
        pub(super) enum Shadow {
            Some,
            None,
        }
        pub(super) use Shadow::Some;

        #[derive(serde::Serialize, serde::Deserialize, rowlock::Job)]
        #[job(
            kind = "a",
            queue = "q",
            priority = 1,
            max_attempts = 1,
            timeout = "1s"
        )]
        #[job(tags("t"), backoff(list("1s"), max = "1m"))]
        pub(super) struct Hostile {}
    }
    assert_eq!(hostile::Hostile::options().tags, ["t"]);
}
