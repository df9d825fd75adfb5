"""Operations on detectors, their replies, and the ports that Ray or a fake implements."""
