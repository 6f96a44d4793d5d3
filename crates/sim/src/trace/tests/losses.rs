//! What a reader keeps of files with many notices, requests out of order, or late completions.

use super::*;

/// What a conversion to `to` says, and what it writes.
fn converted(bytes: &[u8], format: Option<&str>, to: &str) -> (Conversion, Vec<u8>) {
    let reader = reader(bytes, format.and_then(Format::named)).unwrap();
    let mut out = Vec::new();
    let to = Format::named(to).unwrap();
    (convert(reader, to, false, &mut out, |_| ()).unwrap(), out)
}

fn described(bytes: &[u8], format: Option<&str>) -> Info {
    info(reader(bytes, format.and_then(Format::named)).unwrap(), |_| ()).unwrap()
}

fn refused(bytes: &[u8]) -> String {
    read_all(bytes).unwrap_err().to_string()
}

/// Each notice stays before its request, although requests are read far ahead and sorted; `info` reads the
/// new trace as it read the old one.
#[test]
fn notices_stay_in_their_places() {
    for requests in [5_000, 120_000] {
        let (mut text, mut expected) = (String::new(), String::new());
        for at in 0..requests {
            writeln!(
                text,
                "# comment {at:06}\n0,{},512,R,{}.{:03}",
                at * 7,
                at / 1_000,
                at % 1_000
            )
            .unwrap();
            let header = if at == 0 { "time_ns,op,dev,offset,size,resp_ns\n" } else { "" };
            writeln!(
                expected,
                "# comment {at:06}\n{header}{},R,0,{},512,",
                at * 1_000_000,
                at * 7 * 512
            )
            .unwrap();
        }
        text += "# the end\n";
        expected += "# the end\n";
        let (done, out) = converted(text.as_bytes(), None, "weir");
        assert_eq!(done, Conversion { requests, ..Conversion::default() });
        assert!(out == expected.as_bytes());
        let (before, after) = (described(text.as_bytes(), None), described(&out, None));
        assert_eq!((after.format, after.more_notices), ("weir", requests + 1 - 64));
        assert_eq!(Info { format: "spc", ..after }, before);
    }
}

/// A notice stands before the first request by time that is behind it in the file, and not before another that
/// was read with it.
#[test]
fn notices_are_due_with_their_requests() {
    let text = "# a\n0,0,512,R,0.2\n# b\n0,8,512,R,0.1\n# c\n0,16,512,R,0.3\n# d\n";
    let mut reader = reader(text.as_bytes(), None).unwrap();
    assert!(reader.take_notices().is_empty());
    let mut taken = Vec::new();
    while reader.read().unwrap().is_some() {
        taken.push(reader.take_notices().join(" "));
    }
    taken.push(reader.take_notices().join(" "));
    assert_eq!(taken, ["# a # b", "", "# c", "# d"]);
}

/// The header of a new trace is where it is found, behind however many notices; those beyond 1 MiB between two
/// requests are counted. What is written is the same when it is read and written again.
#[test]
fn many_notices_do_not_hide_the_header() {
    let notice = format!("# {}\n", "x".repeat(97));
    for (count, kept) in [(300, 300), (700, 700), (20_000, (1 << 20) / (99 + 32))] {
        let text = format!("{}0,0,512,R,0.1\n0,8,512,R,0.2\n", notice.repeat(count));
        let (done, out) = converted(text.as_bytes(), Some("spc"), "weir");
        assert_eq!((done.requests, done.notices_lost), (2, (count - kept) as u64));
        assert_eq!(done.loses(), count > kept);
        let after = described(&out, None);
        assert_eq!((after.format, after.more_notices), ("weir", kept as u64 - 64));
        assert_eq!(after.digest, described(text.as_bytes(), Some("spc")).digest);
        let (again, same) = converted(&out, None, "weir");
        assert!(again.notices_lost == 0 && same == out);
        assert!(out.starts_with(notice.as_bytes()));
    }
}

/// Text before the data of blkreplay gets a mark, with which no line becomes too long to be read again.
#[test]
fn long_text_before_the_data_is_split() {
    let long = format!("a{}", "é".repeat(2_047));
    assert_eq!(long.len(), 4_095);
    let text = format!("{long}\n1.0 ; 8 ; 1 ; R ; 0 ; 0\n");
    let (done, out) = converted(text.as_bytes(), None, "weir");
    assert_eq!(done.notices_lost, 0);
    let notices = described(&out, None).notices;
    assert_eq!(notices.len(), 2);
    assert_eq!(notices.iter().map(|notice| &notice[2..]).collect::<String>(), long);
}

/// A head of nothing but notices is named as that, also where a character or the first request is cut.
#[test]
fn a_head_of_notices_is_named() {
    let expected =
        "t:16: the first 64 KiB have no request and no header; name the format with --format";
    let line = format!("# {}\n", "ü".repeat(2_000));
    for pad in ["", " "] {
        let text = format!("#{pad}{}0,8,512,R,0.1\n", &line.repeat(17)[1..]);
        assert_eq!(text.is_char_boundary(input::HEAD), pad.is_empty());
        assert_eq!(refused(text.as_bytes()), expected);
    }
    let notices = format!("{}\n", "#".repeat(4_095)).repeat(15) + &"#".repeat(4_089) + "\n";
    let text = format!("{notices}0,8,512,R,0.1\n");
    assert_eq!(text.as_bytes()[..input::HEAD][notices.len()..], *b"0,8,51");
    assert_eq!(refused(text.as_bytes()), expected);
}

/// A line of blkparse.
fn event(micros: u64, what: &str, sector: u64) -> String {
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    format!("8,0 0 1 {seconds}.{micros:06} 1 {what} R {sector} + 8 [a]\n")
}

/// A request that leaves before its completion has none, which is counted; its completion is not that of the
/// next request at its place. A file without completions has missed none.
#[test]
fn completions_that_come_too_late_are_counted() {
    let mut text = event(0, "D", 8);
    for at in 1..order::MOST as u64 {
        text += &event(at, "D", 8 + at * 8);
    }
    text += &event(1_000_000, "D", 8);
    let without = described(text.as_bytes(), None);
    assert_eq!((without.with_response, without.responses_missed), (0, 0));
    text += &event(1_000_010, "C", 8);
    text += &event(2_000_000, "C", 8);
    let mut reader = reader(text.as_bytes(), None).unwrap();
    let records: Vec<_> = std::iter::from_fn(|| reader.read().unwrap()).collect();
    assert_eq!((records[0].response, reader.responses_missed()), (None, 1));
    assert_eq!(records[order::MOST].response, Some(Duration::from_secs(1)));
    let with = described(text.as_bytes(), None);
    assert_eq!((with.with_response, with.responses_missed), (1, 1));
    let (done, _) = converted(text.as_bytes(), None, "weir");
    assert!(done.responses_missed == 1 && done.loses());
}

/// Names get numbers by time, so that the digest is the same after a conversion.
#[test]
fn names_have_the_numbers_of_their_times() {
    let text = "fio version 3 iolog\n5 b read 0 512\n3 a read 512 512\n6 b read 512 512\n";
    let before = described(text.as_bytes(), None);
    let names: Vec<_> = before.devices.iter().map(|device| device.name.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("b")]);
    assert_eq!(before.devices[1].requests, 2);
    for to in ["weir", "iolog3"] {
        let (_, out) = converted(text.as_bytes(), None, to);
        assert_eq!(described(&out, None).digest, before.digest, "{to}");
    }
}

/// A request more than a second before the newest is refused in each format, with the newest; so it is where
/// it would also be one of too many.
#[test]
fn what_is_too_late_by_time_says_so() {
    let spc = "0,0,512,R,0\n0,8,512,R,10\n0,16,512,R,5\n";
    let late = "before that of line 2; at most 1.000 s is sorted; sort the file by time";
    assert_eq!(refused(spc.as_bytes()), format!("t:3: the time is 5.000 s {late}"));
    let second = 1_000_000;
    let blkparse = [event(0, "D", 8), event(40 * second, "D", 8), event(5 * second, "D", 8)];
    assert_eq!(refused(blkparse.concat().as_bytes()), format!("t:3: the time is 35.000 s {late}"));
    let mut text = String::new();
    for at in 0..=order::MOST as u64 {
        text += &event(30 * second + at, "D", 8 + at * 8);
    }
    text += &event(0, "D", 8);
    let late = late.replace("line 2", "line 65537");
    assert_eq!(refused(text.as_bytes()), format!("t:65538: the time is 30.065 s {late}"));
}

/// A request that is out of order by less than a second is sorted over 65,536 requests; by one more it is
/// refused with that reason.
#[test]
fn too_many_requests_are_not_sorted() {
    let mut text = String::new();
    for at in 0..order::MOST {
        writeln!(text, "0,{},512,R,0.5000{at:05}", at * 8).unwrap();
    }
    let records = read_all(format!("{text}0,0,512,R,0.4\n").as_bytes()).unwrap();
    assert_eq!(records.len(), order::MOST + 1);
    assert_eq!(records[1].time, Duration::from_millis(100));
    let text = format!("{text}0,0,512,R,0.6\n0,0,512,R,0.4\n");
    assert_eq!(
        refused(text.as_bytes()),
        "t:65538: the time is 200.000 ms before that of line 65537, and 100.000 ms before that of line \
         1, which left because more than 65536 requests waited to be sorted; sort the file by time"
    );
}

/// A request of a binary file that is too late is named by its byte, with what can sort such a file.
#[test]
fn a_late_binary_record_has_a_place() {
    for (sample, time, second, sort) in [
        (0, 24, 32, "sort its records by time"),
        (2, 8, 51, "sort it with blkparse, and read its text"),
    ] {
        let (_, mut bytes) = binaries().swap_remove(sample);
        bytes[time..time + 8].copy_from_slice(&5_000_000_000_u64.to_le_bytes());
        let by = if sample == 0 { "4999.999 s" } else { "4.999 s" };
        let expected = format!(
            "t: the time of the record at byte {second} is {by} before that of the record at byte 0; at \
             most 1.000 s is sorted; {sort}"
        );
        assert_eq!(refused(&bytes), expected);
    }
}

/// What to do is apart from what is wrong, for those that print it on a line by itself.
#[test]
fn a_remedy_is_apart() {
    let options = Options { event: Some(Event::Queued), ..Options::default() };
    let error = Reader::new(Path::new("t"), Box::new(WEIR.as_bytes()), options).unwrap_err();
    assert_eq!(error.remedy.as_deref(), Some("leave --event out"));
    assert!(error.problem().ends_with("have events of the block layer"), "{error}");
    assert_eq!(error.to_string(), format!("{}; leave --event out", error.problem()));
}
