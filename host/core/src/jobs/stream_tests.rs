//! The list of a stream's outputs: completeness, values in parts, and the thread of large lists.

use futures::FutureExt as _;

use super::*;

fn page(first: u64, outputs: &[&str]) -> ChunkPage {
    let chunk = |text: &&str| Chunk {
        output: Json::parse((*text).to_owned()).unwrap(),
        metrics: None,
        part: None,
    };
    ChunkPage { first, chunks: outputs.iter().map(chunk).collect(), ..ChunkPage::default() }
}

#[test]
fn an_output_list_is_complete_or_absent() {
    let list = |pages: &[&[&str]]| {
        let mut list = OutputList::default();
        for outputs in pages {
            list.add(page(list.next_needed(99)?, outputs));
        }
        list.finish().map(|list| list.as_str().to_owned())
    };
    assert_eq!(list(&[]).as_deref(), Some("[]"));
    assert_eq!(list(&[&["1", "{}"], &["null"]]).as_deref(), Some("[1,{},null]"));
    assert_eq!(list(&[&["1"], &[]]), None, "the job was deleted meanwhile");
    let large = format!("\"{}\"", "x".repeat(OUTPUT_BYTES_MAX / 2));
    assert_eq!(list(&[&["1"], &[&large], &[&large]]), None, "more than an output may have");
}

#[test]
fn a_value_that_was_split_is_whole_in_the_list() {
    const TEXT: u32 = 2;
    const STRING: u32 = 0;
    let whole = |chunks: &[(&str, Option<(u32, u32)>)]| {
        // On one page, and on a page for each chunk.
        let lists = [chunks.len(), 1].map(|size| {
            let mut list = OutputList::default();
            for chunks in chunks.chunks(size) {
                let chunk = |(text, part): &(&str, Option<(u32, u32)>)| Chunk {
                    output: Json::parse((*text).to_owned()).unwrap(),
                    metrics: None,
                    part: part.map(|(index, count)| Part { index, count }),
                };
                let first = list.next_needed(99).unwrap();
                let chunks = chunks.iter().map(chunk).collect();
                list.add(ChunkPage { first, chunks, ..ChunkPage::default() });
            }
            list.finish().unwrap().as_str().to_owned()
        });
        assert_eq!(lists[0], lists[1]);
        assert!(Json::parse(lists[0].clone()).is_ok(), "{}", lists[0]);
        lists[0].clone()
    };
    let object = [(r#""{\"a\":\"x""#, Some((0, TEXT))), (r#""é\"}""#, Some((1, TEXT)))];
    let string =
        [(r#""a\u00e9""#, None), (r#""\n""#, Some((1, STRING))), (r#""z""#, Some((2, STRING)))];
    assert_eq!(whole(&object), r#"[{"a":"xé"}]"#);
    assert_eq!(whole(&string), r#"["a\u00e9\nz"]"#);
    let both = [&[("1", None)][..], &string, &object, &object, &string, &[(r#""s""#, None)]];
    let expected = r#"[1,"a\u00e9\nz",{"a":"xé"},{"a":"xé"},"a\u00e9\nz","s"]"#;
    assert_eq!(whole(&both.concat()), expected);
    // Damaged chunks are `null`, and belong to no value.
    let damaged = ("null", None);
    assert_eq!(whole(&[object[0], damaged, damaged]), "[null,null,null]");
    assert_eq!(whole(&[object[0]]), "[null]");
    assert_eq!(whole(&[damaged, string[1]]), r#"[null,"\n"]"#);
}

#[test]
fn a_large_list_is_joined_apart_from_the_calling_task() {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        for (bytes, is_here) in [(JOIN_INLINE_BYTES_MAX, true), (JOIN_INLINE_BYTES_MAX + 1, false)]
        {
            // The only thread that may block is busy until the first poll is over.
            let (go_on, waits) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            let mut joined = Box::pin(join(OutputList::default(), page(0, &["1", "2"]), bytes));
            let first = joined.as_mut().now_or_never();
            assert_eq!(first.is_some(), is_here, "{bytes}");
            go_on.send(()).unwrap();
            let list = match first {
                Some(list) => list,
                None => joined.await,
            };
            assert_eq!(list.unwrap().finish().unwrap().as_str(), "[1,2]");
            busy.await.unwrap().unwrap();
        }
    });
}
