//! No wake-up is lost between two tasks.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::thread;

use crate::Model;
use crate::flush_signal::{FlushSignal, Unwritten};
use crate::notifier::Notifier;
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

pub const MODELS: [Model; 5] = [
    ("notifier: a wake during a poll is not lost", a_wake_during_a_poll_is_not_lost),
    ("notifier: a wake while the task changes is not lost", a_wake_while_the_task_changes),
    ("flush signal: a body learns of the next flush", a_body_learns_of_the_next_flush),
    ("flush signal: two bodies learn of one flush", two_bodies_learn_of_one_flush),
    ("unwritten frames: the last frame wakes the body", the_last_frame_wakes_the_body),
];

/// Counts its wake-ups.
struct Task(AtomicUsize);

impl Task {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(0)))
    }

    fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls an inner future that is ready once `event` is set. Returns whether it was ready.
fn poll(notifier: &mut Notifier, task: &Waker, event: &AtomicBool) -> bool {
    let mut is_ready = notifier.enter(task) && event.load(Ordering::Acquire);
    while !notifier.leave() {
        is_ready |= event.load(Ordering::Acquire);
    }
    is_ready
}

fn a_wake_during_a_poll_is_not_lost() {
    let (task, event) = (Task::new(), Arc::new(AtomicBool::new(false)));
    let mut notifier = Notifier::default();
    let waker = notifier.waker().clone();
    let waking = thread::spawn({
        let event = Arc::clone(&event);
        move || {
            event.store(true, Ordering::Release);
            waker.wake_by_ref();
        }
    });
    let outer = Waker::from(Arc::clone(&task));
    let is_ready = poll(&mut notifier, &outer, &event);
    waking.join().unwrap();
    assert!(is_ready || task.is_woken(), "the event was neither seen nor reported");
    assert!(is_ready || poll(&mut notifier, &outer, &event), "the next poll sees the event");
}

fn a_wake_while_the_task_changes() {
    let (first, second) = (Task::new(), Task::new());
    let event = Arc::new(AtomicBool::new(false));
    let mut notifier = Notifier::default();
    let waker = notifier.waker().clone();
    let waking = thread::spawn({
        let event = Arc::clone(&event);
        move || {
            event.store(true, Ordering::Release);
            waker.wake_by_ref();
        }
    });
    let is_ready = poll(&mut notifier, &Waker::from(first), &event);
    let is_ready = poll(&mut notifier, &Waker::from(Arc::clone(&second)), &event) || is_ready;
    waking.join().unwrap();
    assert!(is_ready || second.is_woken(), "the task that polled last is woken");
}

/// Requests a flush and polls for it. Returns the number for the next poll, if the flush has not occurred.
fn wait(signal: &FlushSignal, task: &Arc<Task>) -> Option<u32> {
    let previous = signal.request();
    let waker = Waker::from(Arc::clone(task));
    signal.poll(previous, &mut Context::from_waker(&waker)).is_pending().then_some(previous)
}

fn a_body_learns_of_the_next_flush() {
    let (signal, task) = (Arc::new(FlushSignal::default()), Task::new());
    let requested = Arc::new(AtomicBool::new(false));
    let flushing = thread::spawn({
        let (signal, requested) = (Arc::clone(&signal), Arc::clone(&requested));
        move || {
            // The second flush begins after the request, if the thread saw it.
            signal.on_flushed();
            let is_after = requested.load(Ordering::Acquire);
            signal.on_flushed();
            is_after
        }
    });
    let previous = signal.request();
    requested.store(true, Ordering::Release);
    let waker = Waker::from(Arc::clone(&task));
    let is_pending = signal.poll(previous, &mut Context::from_waker(&waker)).is_pending();
    let is_after = flushing.join().unwrap();
    if is_after && is_pending {
        assert!(task.is_woken(), "the flush after the request was not reported");
    }
    if task.is_woken() {
        let polled = signal.poll(previous, &mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(()), "a woken body sees the flush");
    }
}

fn two_bodies_learn_of_one_flush() {
    let signal = Arc::new(FlushSignal::default());
    let tasks = [Task::new(), Task::new()];
    let other = thread::spawn({
        let (signal, task) = (Arc::clone(&signal), Arc::clone(&tasks[1]));
        move || wait(&signal, &task)
    });
    let first = wait(&signal, &tasks[0]);
    let second = other.join().unwrap();
    assert!(first.is_some() && second.is_some(), "no flush has occurred");
    signal.on_flushed();
    assert!(tasks.iter().all(|task| task.is_woken()));
}

fn the_last_frame_wakes_the_body() {
    let (frames, task) = (Arc::new(Unwritten::default()), Task::new());
    frames.add();
    frames.add();
    let writing = thread::spawn({
        let frames = Arc::clone(&frames);
        move || {
            frames.remove();
            frames.remove();
        }
    });
    let waker = Waker::from(Arc::clone(&task));
    let polled = frames.poll_empty(&mut Context::from_waker(&waker));
    writing.join().unwrap();
    assert!(polled.is_ready() || task.is_woken(), "the body waits for ever");
    let again = frames.poll_empty(&mut Context::from_waker(Waker::noop()));
    assert_eq!(again, Poll::Ready(()));
}
