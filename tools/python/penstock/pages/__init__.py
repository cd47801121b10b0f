"""The parts of `penstock page`: what runs left (reports, traces), and the document that shows it."""
