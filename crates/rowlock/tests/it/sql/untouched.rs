//! Completing jobs that are as their claim left them, by place and transaction; and all that may have happened to them since.

use tokio_postgres::Client as Pg;

use super::kit::{Held, Installed, enqueue, installed, named, number, one, rows, run, tids};

/// A claim of the library's form, from a queue without history: what it brought in the order of the places, and its mark.
async fn claim_marked(pg: &Pg, n: usize, token: i64) -> (Vec<Held>, i64) {
    let sql = format!(
        "select id, tid, payload ->> 'mark' from rowlock.claim_batch('{{default}}', '{{{n}}}', {n}, 0, {token}) order by tid"
    );
    let mut jobs = Vec::new();
    let mut mark = 0;
    for row in rows(pg, &sql).await {
        let cells: Vec<&str> = row.split('|').collect();
        match cells[0].parse() {
            Ok(id) => jobs.push(Held {
                id,
                token,
                attempt: 1,
                tid: cells[1].to_owned(),
            }),
            Err(_) => mark = cells[2].parse().expect("a mark"),
        }
    }
    assert_eq!(jobs.len(), n, "that many are there");
    (jobs, mark)
}

const DONE_LOST_BUSY: &str = "array(select unnest(done) order by 1), array(select unnest(lost) order by 1), array(select unnest(busy) order by 1)";

/// Completes jobs of which the caller says that nobody has touched them.
async fn complete_marked(pg: &Pg, runs: &[(&[Held], i64)]) -> String {
    let all: Vec<Held> = runs.iter().flat_map(|r| r.0.to_vec()).collect();
    let lengths: Vec<String> = runs.iter().map(|r| r.0.len().to_string()).collect();
    let marks: Vec<String> = runs.iter().map(|r| r.1.to_string()).collect();
    one(
        pg,
        &format!(
            "select {DONE_LOST_BUSY} from rowlock.complete_batch({}, {}::tid[], runs => '{{{}}}', marks => '{{{}}}')",
            named(&all),
            tids(&all),
            lengths.join(","),
            marks.join(",")
        ),
    )
    .await
}

async fn without_history(jobs: usize) -> Installed {
    let own = installed().await;
    run(
        &own.pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    enqueue(&own.pg, jobs).await;
    own
}

fn list(jobs: &[Held]) -> String {
    let ids: Vec<String> = jobs.iter().map(|j| j.id.to_string()).collect();
    format!("{{{}}}", ids.join(","))
}

#[tokio::test]
async fn jobs_that_nobody_has_touched_are_done_by_place_and_transaction() {
    let own = without_history(7).await;
    let pg = &own.pg;
    let (first, mark) = claim_marked(pg, 3, 71).await;
    let (second, other) = claim_marked(pg, 2, 72).await;
    assert_ne!(mark, other, "each claim has its own");
    let untouched = format!(
        "select rowlock.finish_untouched('default', '{{71,71,72,72}}', {}::tid[], '{{2,2}}', '{{{mark},{other}}}')",
        tids(&[&first[..2], &second[..]].concat())
    );
    run(pg, "begin").await;
    assert_eq!(one(pg, &untouched).await, "t", "it is known by its mark");
    run(pg, "rollback").await;
    let said = complete_marked(pg, &[(&first[..2], mark), (&second, other)]).await;
    assert_eq!(
        said,
        format!(
            "{}|{{}}|{{}}",
            list(&[&first[..2], &second[..]].concat()[..])
        )
    );
    assert_eq!(
        rows(
            pg,
            "select id from rowlock.job where token <> 0 order by id"
        )
        .await,
        [first[2].id.to_string()],
        "the third was not named"
    );
    // It is said again after a broken connection, and changes nothing.
    let said = complete_marked(pg, &[(&first[..2], mark)]).await;
    assert_eq!(said, format!("{{}}|{}|{{}}", list(&first[..2])));
}

#[tokio::test]
async fn what_was_touched_since_the_claim_is_done_all_the_same_or_answered_one_by_one() {
    let own = without_history(6).await;
    let (pg, other) = (&own.pg, own.another().await);
    let (jobs, mark) = claim_marked(pg, 6, 71).await;

    // The lease of one was renewed.
    run(pg, &format!("select rowlock.extend({})", named(&jobs[..1]))).await;
    let said = complete_marked(pg, &[(&jobs[..2], mark)]).await;
    assert!(
        said.ends_with("|{}|{}"),
        "both are done, whoever moved: {said}"
    );
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 4);

    // Somebody has locked one.
    let lock = format!(
        "begin; select from rowlock.job where id = {} for update",
        jobs[2].id
    );
    run(&other, &lock).await;
    let said = complete_marked(pg, &[(&jobs[2..4], mark)]).await;
    assert_eq!(
        said,
        format!("{}|{{}}|{}", list(&jobs[3..4]), list(&jobs[2..3])),
        "the other one does not wait for it"
    );
    run(&other, "rollback").await;

    // Another has the job by now.
    run(
        pg,
        &format!("update rowlock.job set token = 5 where id = {}", jobs[4].id),
    )
    .await;
    let said = complete_marked(pg, &[(&jobs[4..], mark)]).await;
    assert_eq!(
        said,
        format!("{}|{}|{{}}", list(&jobs[5..]), list(&jobs[4..5]))
    );
}

/// After a rewrite of the table another row of the same claim, with the same token and transaction, is in the place of the first.
#[tokio::test]
async fn a_rewritten_table_is_not_taken_for_what_the_claim_has_written() {
    let own = without_history(8).await;
    let pg = &own.pg;
    // The places of these are free when the others are claimed, who move into them; unless the server just looks at what to vacuum itself.
    let (before, mark) = claim_marked(pg, 4, 70).await;
    complete_marked(pg, &[(&before, mark)]).await;
    let mut token = 71;
    let (jobs, mark) = loop {
        run(pg, "vacuum rowlock.job").await;
        let (jobs, mark) = claim_marked(pg, 4, token).await;
        if jobs[0].tid == "(0,1)" {
            break (jobs, mark);
        }
        assert!(token < 200, "vacuum leaves the places of finished jobs");
        let release = format!("select rowlock.release({})", named(&jobs));
        run(pg, &release).await;
        token += 1;
    };
    assert_eq!(
        complete_marked(pg, &[(&jobs[..1], mark)]).await,
        format!("{}|{{}}|{{}}", list(&jobs[..1]))
    );
    let in_its_place = format!("select id from rowlock.job where ctid = '{}'", jobs[1].tid);
    for times in 1.. {
        run(pg, "vacuum full rowlock.job").await;
        if number(pg, &in_its_place).await == jobs[2].id {
            break;
        }
        assert!(times < 100, "no row is where another was");
    }
    for job in &jobs[1..] {
        let job = std::slice::from_ref(job);
        assert_eq!(
            complete_marked(pg, &[(job, mark)]).await,
            format!("{}|{{}}|{{}}", list(job))
        );
        let left = format!("select count(*) from rowlock.job where id = {}", job[0].id);
        assert_eq!(number(pg, &left).await, 0, "this one is done, no other");
    }
}

/// Numbers that do not add up make no difference: then it goes by what is known of each job.
#[tokio::test]
async fn runs_that_are_wrong_are_not_believed() {
    for (runs, marks) in [
        ("{2}", "{1}"),
        ("{1}", "{MARK}"),
        ("{3}", "{MARK}"),
        ("{2,1}", "{MARK,MARK}"),
        ("{2}", "{}"),
        ("{null}", "{MARK}"),
        ("{-1,3}", "{MARK,MARK}"),
        ("{}", "{}"),
        ("{0}", "{null}"),
    ] {
        let own = without_history(3).await;
        let pg = &own.pg;
        let (jobs, mark) = claim_marked(pg, 3, 71).await;
        let call = format!(
            "select {DONE_LOST_BUSY} from rowlock.complete_batch({}, {}::tid[], runs => '{runs}', marks => '{}')",
            named(&jobs[..2]),
            tids(&jobs[..2]),
            marks.replace("MARK", &mark.to_string())
        );
        assert_eq!(
            one(pg, &call).await,
            format!("{}|{{}}|{{}}", list(&jobs[..2])),
            "{runs} {marks}"
        );
        assert_eq!(
            rows(pg, "select id from rowlock.job").await,
            [jobs[2].id.to_string()],
            "{runs} {marks}"
        );
    }
}
