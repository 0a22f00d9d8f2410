"""lerobot: the frames that its EpisodeAwareSampler draws, without a list of them, and resumed."""

import importlib

import numpy as np

import samplerkit as sk

NEEDS = ("lerobot",)

FROM, TO = [0, 40, 100, 130], [40, 100, 130, 200]
FRAMES = [frame for first, end in zip(FROM, TO, strict=True) for frame in range(first + 3, end - 5)]


def test_the_same_frames_come_and_the_middle_of_an_epoch_can_be_resumed():
    theirs = importlib.import_module("lerobot.datasets.sampler").EpisodeAwareSampler
    peer = theirs(FROM, TO, drop_n_first_frames=3, drop_n_last_frames=5, shuffle=True)
    ours = sk.SubsetRandomSampler(FRAMES, seed=7)
    assert sorted(peer) == sorted(ours.order(200)[:].tolist()) == FRAMES
    read = sk.Loader(range(200), ours, batch_size=8, world=sk.World(1, 0))
    state = read.state_dict(step=9)
    resumed = sk.Loader(range(200), ours, batch_size=8, world=sk.World(1, 0))
    resumed.load_state_dict(state)
    rest = np.concatenate([batch.numpy() for batch in resumed])
    assert rest.tolist() == ours.order(200)[72:].tolist()
